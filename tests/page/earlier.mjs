// Shows more and more of a conversation, until there is no more, and then what is new.
//
//   node earlier.mjs CHROMIUM ADDRESS TRANSCRIPT LINE
//
// Prints how many parts there are each time, and which one is the first.

import { appendFileSync } from 'node:fs';
import { chromium } from 'playwright-core';

const [, , executablePath, address, transcript, line] = process.argv;
const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu'] });
const page = await browser.newPage();
page.on('pageerror', (error) => { throw error; });
await page.goto(`${address}/conversation/ana`);
const parts = () => page.locator('.turn .md').allTextContents();
const grown = async (before) => {
  await page.waitForFunction((before) => document.querySelectorAll('.turn').length > before, before);
  const all = await parts();
  if (new Set(all).size !== all.length) throw new Error('something is shown twice');
  console.log(`${all.length} from ${all[0]}`);
  return all.length;
};
let count = await grown(0);
const more = page.getByRole('button', { name: 'Show what was said earlier' });
while (await more.isVisible()) {
  await more.click();
  count = await grown(count);
}
appendFileSync(transcript, line);
await grown(count);
await browser.close();
