"""From a teacher and a budget to students that meet it: candidates costed, tried, trained and exported."""
