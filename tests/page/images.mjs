// Looks at the images of the conversation of ana, and then has the server serve something else for them.
//
//   node images.mjs CHROMIUM ADDRESS
//
// Prints what is painted. Fails at an error of the page, and if the page would show what is no image.

import { chromium } from 'playwright-core';

const [, , executablePath, address] = process.argv;
const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu'] });
const page = await browser.newPage();
page.setDefaultTimeout(20000);
page.on('pageerror', (error) => { throw error; });
page.on('console', (said) => { if (said.type() === 'error') throw new Error(said.text()); });
page.on('dialog', () => { throw new Error('a script ran'); });
await page.goto(`${address}/conversation/ana`);
const painted = (within) => page.locator(`${within} canvas[data-painted]`);
const size = (canvas) => canvas.evaluate(({ width, height }) => `${width}×${height}`);
const first = painted('.turn');
await first.waitFor();
console.log('painted:', await first.getAttribute('aria-label'), 'of', await size(first));
console.log('said:', await page.locator('.turn > p.dim').textContent());
console.log('output:', await page.locator('.turn .out').first().textContent());
await page.locator('button.picture').click();
await painted('dialog').waitFor();
console.log('full size:', await size(painted('dialog')));
await page.keyboard.press('Escape');
await page.waitForFunction(() => !document.querySelector('dialog'));

const body = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9" onload="alert(1)"><script>alert(2)</script></svg>';
for (const contentType of ['image/svg+xml', 'image/png', 'text/html']) {
  await page.route('**/image?*', (route) => route.fulfill({ contentType, body }));
  await page.reload();
  const refused = page.locator('button.picture span');
  await refused.waitFor();
  console.log(`served as ${contentType}:`, await refused.textContent());
  await page.unroute('**/image?*');
}
console.log('elements:', await page.locator('main :is(img, svg, iframe, object, embed, script)').count());
await browser.close();
