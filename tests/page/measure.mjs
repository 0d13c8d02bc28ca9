// Measures the page in a headless Chromium, and prints the figures as JSON: milliseconds from the navigation to the first paint and to
// the first view, and from a line that is appended to FILE to its text on the screen; the heap of the page in bytes.
//
//   node measure.mjs CHROMIUM ADDRESS FILE COUNT

import { appendFileSync } from 'node:fs';
import { chromium } from 'playwright-core';

/** How often the page is opened; the median counts. */
const OPENED = 5;
const [, , executablePath, address, file, count] = process.argv;
const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu', '--enable-precise-memory-info'] });
/** Opens the page, as in a browser that runs already. */
async function open() {
  const page = await browser.newPage({ viewport: { width: 1280, height: 800 } });
  await page.goto(address);
  await page.waitForFunction(() => document.body.dataset.shown === 'overview', undefined, { polling: 'raf' });
  const times = await page.evaluate(() => ({ paint: performance.getEntriesByName('first-contentful-paint')[0].startTime, shown: performance.now() }));
  return { page, ...times };
}
const opened = [];
for (let n = 0; n < OPENED; n += 1) {
  const once = await open();
  opened.push(once);
  if (n + 1 < OPENED) await once.page.close();
}
const { page } = opened.at(-1);
const median = (values) => values.sort((a, b) => a - b)[Math.floor(values.length / 2)];
const paint = median(opened.map((once) => once.paint));
const shown = median(opened.map((once) => once.shown));
// Inboxes are read at first: what changes then is told once a second.
await page.waitForTimeout(3000);
const took = [];
for (let n = 0; n < Number(count); n += 1) {
  const content = `measured ${n} ${Date.now()}`;
  await page.evaluate((text) => {
    globalThis.seen = new Promise((done) => {
      const observer = new MutationObserver(() => {
        if (!document.querySelector('.feed')?.textContent.includes(text)) return;
        observer.disconnect();
        done(performance.timeOrigin + performance.now());
      });
      observer.observe(document.body, { childList: true, subtree: true });
    });
  }, content);
  const began = performance.timeOrigin + performance.now();
  appendFileSync(file, `${JSON.stringify({ type: 'message', from: 'w1', to: 'lead', content, timestamp: Date.now() / 1000 })}\n`);
  took.push(await page.evaluate(() => globalThis.seen) - began);
  await page.waitForTimeout(200);
}
const heap = await page.evaluate(() => performance.memory.usedJSHeapSize);
console.log(JSON.stringify({ paint, shown, took, heap }));
await browser.close();
