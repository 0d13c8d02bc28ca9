// Looks at each view of the page in a headless Chromium, light and dark, on a phone and on a desk, and has axe examine it.
//
//   node look.mjs CHROMIUM ADDRESS [FOLDER]
//
// Prints what axe finds, each finding as a line of JSON, and with FOLDER writes a picture of each view. Fails at an error of the page.

import axe from 'axe-core';
import { chromium } from 'playwright-core';

const [, , executablePath, address, folder] = process.argv;
const SIZES = { phone: { width: 390, height: 844 }, desk: { width: 1280, height: 800 } };
const VIEWS = ['overview', 'requests', 'board', 'conversation/ana', 'sequence', 'timeline', 'cost', 'task/1', 'task/2', 'teammate/bo', 'teammate/ana'];
/** What opens a text over a view. */
const OPENS = { overview: '#orders button:visible >> nth=0', board: '#orders button:visible >> nth=1', 'teammate/ana': '.acts button.no', sequence: 'svg g[role=button]', timeline: 'svg g[role=button]' };

const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu'] });
for (const colorScheme of ['light', 'dark']) {
  for (const [size, viewport] of Object.entries(SIZES)) {
    const context = await browser.newContext({ colorScheme, viewport, hasTouch: size === 'phone' });
    const page = await context.newPage();
    page.on('pageerror', (error) => { throw error; });
    page.on('console', (said) => { if (said.type() === 'error') throw new Error(said.text()); });
    await page.goto(address);
    const examine = async (name) => {
      if (folder) await page.screenshot({ path: `${folder}/${name.replace('/', '-')}-${size}-${colorScheme}.png` });
      // The policy of the page lets no script in; the driver may.
      await page.evaluate(axe.source);
      const { violations } = await page.evaluate(() => globalThis.axe.run(document, { rules: { 'target-size': { enabled: true } } }));
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      if (wide > 0) console.log(JSON.stringify({ view: name, size, colorScheme, impact: 'serious', id: 'wider-than-the-screen', nodes: [`${wide} px`] }));
      const vacant = size === 'phone' && await page.locator('.board .vacant:visible').count();
      if (vacant) console.log(JSON.stringify({ view: name, size, colorScheme, impact: 'serious', id: 'empty-columns-on-a-phone', nodes: [`${vacant}`] }));
      for (const { id, impact, nodes } of violations) {
        console.log(JSON.stringify({ view: name, size, colorScheme, impact, id, nodes: nodes.slice(0, 3).map((node) => node.html.slice(0, 200)) }));
      }
    };
    for (const view of VIEWS) {
      await page.evaluate((view) => { location.hash = `#/${view}`; }, view);
      await page.waitForSelector(`body[data-shown=${view.split('/')[0]}]`);
      // A zoom that fits is asked for by the view itself, and told a moment later.
      await page.waitForTimeout(400);
      await examine(view);
      if (!OPENS[view]) continue;
      await page.locator(OPENS[view]).last().click();
      await page.waitForSelector('dialog[open] :is(pre:not(:empty), form)');
      await examine(`${view}-text`);
      await page.keyboard.press('Escape');
      await page.waitForFunction(() => !document.querySelector('dialog'));
      await page.locator(OPENS[view]).last().click();
      await page.waitForSelector('dialog[open]');
      await page.goBack();
      await page.waitForFunction(() => !document.querySelector('dialog'));
      const shown = await page.evaluate(() => location.hash);
      if (shown !== `#/${view}`) throw new Error(`Back leads from a text over ${view} to ${shown}`);
    }
    await context.close();
  }
}
await browser.close();
