// Judge pages by axe-core in Chromium, on a phone and a desktop, light and dark; fail on a serious finding.
//
// make docs; npm install --no-save axe-core puppeteer-core
// node scripts/axe.mjs site runs/*/report.html      (CHROMIUM=/path/to/chromium, default /usr/bin/chromium)
import fs from "node:fs";
import http from "node:http";
import path from "node:path";
import { createRequire } from "node:module";
import puppeteer from "puppeteer-core";

const axe = fs.readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const types = { ".css": "text/css", ".html": "text/html", ".js": "text/javascript", ".svg": "image/svg+xml" };
// Each place from a server of its own: the page 404 names its files from the root.
const serve = (root) =>
  new Promise((ready) => {
    const server = http.createServer((asked, answer) => {
      const file = path.join(root, decodeURIComponent(new URL(asked.url, "http://here").pathname));
      if (!fs.existsSync(file) || !fs.statSync(file).isFile()) return answer.writeHead(404).end();
      answer.writeHead(200, { "Content-Type": types[path.extname(file)] ?? "application/octet-stream" });
      answer.end(fs.readFileSync(file));
    });
    server.listen(0, "127.0.0.1", () => ready(`http://127.0.0.1:${server.address().port}/`));
    server.unref();
  });
const pages = [];
for (const place of process.argv.slice(2)) {
  const folder = fs.statSync(place).isDirectory();
  const names = folder ? fs.readdirSync(place, { recursive: true }).sort() : [path.basename(place)];
  const root = folder ? place : path.dirname(place);
  const base = await serve(root);
  for (const name of names.filter((one) => one.endsWith(".html")))
    pages.push([path.join(root, name), base + name.split(path.sep).map(encodeURIComponent).join("/")]);
}

const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
const browser = await puppeteer.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"] });
const tab = await browser.newPage();
// The site's theme remembers the first scheme that it was shown in.
await tab.evaluateOnNewDocument(() => localStorage.clear());
const found = new Map();
for (const [page, url] of pages)
  for (const [width, height] of [[390, 844], [1280, 800]])
    for (const value of ["light", "dark"]) {
      await tab.setViewport({ width, height });
      await tab.emulateMediaFeatures([
        { name: "prefers-color-scheme", value },
        { name: "prefers-reduced-motion", value: "reduce" },
      ]);
      await tab.goto(url);
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
