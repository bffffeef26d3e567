// Judge pages by axe-core in Chromium, on a phone and a desktop, light and dark; fail on a serious finding.
//
// make docs; npm install --no-save axe-core puppeteer-core
// node scripts/axe.mjs site runs/*/report.html      (CHROMIUM=/path/to/chromium, default /usr/bin/chromium)
import fs from "node:fs";
import path from "node:path";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import puppeteer from "puppeteer-core";

const axe = fs.readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const places = process.argv.slice(2);
const pages = places.flatMap((place) =>
  fs.statSync(place).isDirectory()
    ? fs.readdirSync(place, { recursive: true }).sort().map((name) => path.join(place, name))
    : [place]
).filter((name) => name.endsWith(".html"));

const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
const browser = await puppeteer.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"] });
const tab = await browser.newPage();
// The site's theme remembers the first scheme that it was shown in.
await tab.evaluateOnNewDocument(() => localStorage.clear());
const found = new Map();
for (const page of pages)
  for (const [width, height] of [[390, 844], [1280, 800]])
    for (const value of ["light", "dark"]) {
      await tab.setViewport({ width, height });
      await tab.emulateMediaFeatures([
        { name: "prefers-color-scheme", value },
        { name: "prefers-reduced-motion", value: "reduce" },
      ]);
      await tab.goto(pathToFileURL(path.resolve(page)).href);
      await tab.evaluate(() => document.querySelectorAll("details").forEach((one) => (one.open = true)));
      await tab.evaluate(axe);
      const judged = await tab.evaluate(() => axe.run(document, { resultTypes: ["violations"] }));
      if (await tab.evaluate(() => document.documentElement.scrollWidth > innerWidth))
        judged.violations.push({ id: "page-wider-than-window", impact: "serious", nodes: [{ target: ["html"] }] });
      for (const { id, impact, nodes } of judged.violations)
        for (const node of nodes) {
          const key = `${impact}\t${id}`;
          const said = `${page} at ${width}, ${value}: ${node.target.join(" ")}`;
          found.set(key, [...(found.get(key) ?? []), said]);
        }
    }
await browser.close();
for (const [key, all] of [...found].sort()) console.log(`${key}\t${all.length}, first ${all[0]}`);
console.log(`${pages.length} pages`);
if (pages.length === 0 || [...found.keys()].some((key) => /^(serious|critical)/.test(key))) process.exitCode = 1;
