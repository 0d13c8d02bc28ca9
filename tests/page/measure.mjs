// Measures the page in a headless Chromium, and prints the figures as JSON: milliseconds from the navigation to the first paint and to
// the first view, and from a line that is appended to FILE to its text on the screen; the heap of the page in bytes.
//
//   node measure.mjs CHROMIUM ADDRESS FILE COUNT

import { appendFileSync } from 'node:fs';
import { chromium } from 'playwright-core';

const [, , executablePath, address, file, count] = process.argv;
const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu', '--enable-precise-memory-info'] });
const page = await browser.newPage({ viewport: { width: 1280, height: 800 } });
await page.goto(address);
await page.waitForFunction(() => document.body.dataset.shown === 'overview', undefined, { polling: 'raf' });
const { paint, shown } = await page.evaluate(() => ({ paint: performance.getEntriesByName('first-contentful-paint')[0].startTime, shown: performance.now() }));
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
        done();
      });
      observer.observe(document.body, { childList: true, subtree: true });
    });
  }, content);
  const began = performance.now();
  appendFileSync(file, `${JSON.stringify({ type: 'message', from: 'w1', to: 'lead', content, timestamp: Date.now() / 1000 })}\n`);
  await page.evaluate(() => globalThis.seen);
  took.push(performance.now() - began);
  await page.waitForTimeout(200);
}
const heap = await page.evaluate(() => performance.memory.usedJSHeapSize);
console.log(JSON.stringify({ paint, shown, took, heap }));
await browser.close();
