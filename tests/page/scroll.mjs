// Opens submitted work in a headless Chromium, scrolls through it to its end, and prints the figures as JSON: milliseconds from the opening
// to the first line on the screen and to the whole, the longest task of the page meanwhile (0: none was over 50 ms), and its lines.
//
//   node scroll.mjs CHROMIUM ADDRESS REQUEST

import { chromium } from 'playwright-core';

const [, , executablePath, address, id] = process.argv;
const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu'] });
const page = await browser.newPage({ viewport: { width: 1440, height: 900 } });
page.setDefaultTimeout(120000);
page.on('pageerror', (error) => { throw error; });
await page.goto(address);
await page.waitForSelector('body[data-shown=overview]');
await page.evaluate((id) => {
  globalThis.longest = 0;
  new PerformanceObserver((list) => { for (const { duration } of list.getEntries()) globalThis.longest = Math.max(globalThis.longest, duration); }).observe({ type: 'longtask' });
  globalThis.began = performance.now();
  location.hash = `#/request/${id}`;
}, id);
const since = () => page.evaluate(() => performance.now() - globalThis.began);
await page.waitForFunction(() => document.querySelector('.changes .line'), undefined, { polling: 'raf' });
const first = await since();
await page.waitForSelector('.changes .side:not([aria-busy])');
const whole = await since();
await page.mouse.move(700, 400);
for (let at = 0; at < 5000; at += 1) {
  await page.mouse.wheel(0, 400);
  const isEnd = await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => done(scrollY + innerHeight >= document.documentElement.scrollHeight - 2 && !document.querySelector('[data-verdict=a]').disabled))));
  if (isEnd) break;
}
const [longest, lines] = await page.evaluate(() => [globalThis.longest, document.querySelectorAll('.line').length]);
console.log(JSON.stringify({ first, whole, longest, lines }));
await browser.close();
