// Opens views one after the other, each once it shows a text.
//
//   node hostile.mjs CHROMIUM [ADDRESS AWAITED]…
//
// Prints a JSON list of the documents. Anything on the console, an error and a dialog are faults.

import { chromium } from 'playwright-core';

const [, , executablePath, ...wanted] = process.argv;
const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu'] });
const context = await browser.newContext();
const documents = [];
while (wanted.length) {
  const [address, awaited] = wanted.splice(0, 2);
  const page = await context.newPage();
  page.on('pageerror', (error) => { throw error; });
  page.on('console', (message) => {
    // Without a key the page is refused what it asks for.
    if (!address.includes('#') && message.text().includes('401')) return;
    throw new Error(`${address}: ${message.text()}`);
  });
  page.on('dialog', (dialog) => { throw new Error(`${address}: ${dialog.message()}`); });
  await page.goto(address);
  await page.waitForFunction((awaited) => document.documentElement.outerHTML.includes(awaited), awaited, { timeout: 60_000 });
  documents.push(await page.content());
  await page.close();
}
await browser.close();
console.log(JSON.stringify(documents));
