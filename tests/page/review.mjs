// Reviews submitted work on the page as a person does: looks, comments on lines, loads the page again, and rejects.
//
//   node review.mjs CHROMIUM ADDRESS REQUEST
//
// The last line has, as JSON, the longest task of the page in milliseconds while the work was shown and scrolled. Fails at an error of the page.

import axe from 'axe-core';
import { chromium } from 'playwright-core';

const [, , executablePath, address, id] = process.argv;
const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu'] });
const page = await browser.newPage({ viewport: { width: 1440, height: 900 } });
page.setDefaultTimeout(60000);
page.on('pageerror', (error) => { throw error; });
page.on('console', (said) => { if (said.type() === 'error') throw new Error(said.text()); });
// What is made because nothing else is to do must not hide what is made because it is in sight.
await page.addInitScript(() => {
  globalThis.requestIdleCallback = () => 0;
  globalThis.longest = 0;
  new PerformanceObserver((list) => { for (const { duration } of list.getEntries()) globalThis.longest = Math.max(globalThis.longest, duration); }).observe({ type: 'longtask' });
});
const here = async () => {
  await page.waitForSelector('body[data-shown=request]');
  await page.waitForSelector('.changes .side:not([aria-busy])');
};
const approve = () => page.locator('[data-verdict=a]').isEnabled();
await page.goto(address);
await page.waitForSelector('body[data-shown=overview]');
await page.evaluate((id) => { location.hash = `#/request/${id}`; }, id);
await here();
await page.waitForSelector('.line');
const lines = await page.locator('.line').count();
console.log('made at first:', lines > 0 && lines < 3000 ? 'some' : `${lines} of 20000`);
console.log('approve:', await approve() ? 'enabled' : 'disabled');

const calc = page.locator('.change', { has: page.locator('.file-head code', { hasText: /^calc\.rs$/ }) });
await page.locator('.files a', { hasText: /^calc\.rs$/ }).click();
await calc.locator('.code span[class^=k]').first().waitFor();
console.log('colours: some');
await calc.locator('button.n').first().click();
await page.keyboard.type('a <b>defect</b>');
await page.getByRole('button', { name: 'Keep the comment' }).click();
console.log('comment:', await calc.locator('.remark p').textContent());
// Examined with the form of a comment open.
await calc.getByRole('button', { name: 'Edit' }).click();
await calc.locator('form.remark').waitFor();
for (const colorScheme of ['light', 'dark']) {
  await page.emulateMedia({ colorScheme });
  // The policy of the page lets no script in; the driver may.
  await page.evaluate(axe.source);
  const { violations } = await page.evaluate(() => globalThis.axe.run('.card', { rules: { 'target-size': { enabled: true } } }));
  const bad = violations.filter(({ impact }) => ['serious', 'critical'].includes(impact));
  console.log(`axe, ${colorScheme}:`, bad.map(({ id, nodes }) => `${id} ${nodes[0].html.slice(0, 200)} ${nodes[0].failureSummary.slice(0, 200)}`).join() || 'nothing serious');
}
await page.keyboard.press('Escape');
const long = page.locator('.change', { has: page.locator('.file-head code', { hasText: /^long\.txt$/ }) });
await page.locator('.files a', { hasText: /^long\.txt$/ }).click();
await long.locator('button.n').first().focus();
await page.keyboard.press('ArrowDown');
await page.keyboard.press('j');
await page.keyboard.press('c');
await page.keyboard.type('why?');
await page.keyboard.press('Control+Enter');
console.log('by the keyboard:', await long.locator('.remark p').textContent());

await page.reload();
await here();
const count = page.locator('.acts .need', { hasText: 'comments' });
console.log('after a reload:', await count.textContent());
await page.getByRole('button', { name: 'Side by side' }).click();
await page.waitForFunction(() => document.querySelectorAll('.line.two').length > 0);
await page.locator('.files a', { hasText: /^long\.txt$/ }).click();
await long.locator('.remark').waitFor();
await page.locator('.files a', { hasText: /^calc\.rs$/ }).click();
await calc.locator('.remark').waitFor();
const beside = await calc.evaluate((file) => file.querySelector('.remark').getBoundingClientRect().left - file.querySelector('.half.ins').getBoundingClientRect().left);
console.log('side by side:', await page.locator('.remark').count(), 'comments,', beside > 0 && beside < 100 ? 'below their half' : beside);
const folded = page.locator('.file-head[aria-expanded=false] code');
console.log('folded:', (await folded.allTextContents()).join());
for (let at = 0; at < 60 && !await approve(); at += 1) {
  await page.mouse.wheel(0, 9000);
  await page.waitForTimeout(20);
}
if (!await approve()) await page.waitForFunction(() => !document.querySelector('[data-verdict=a]').disabled);
console.log('at the end: enabled');
await page.waitForTimeout(400);
await page.locator('[name=feedback]').fill('please fix');
await page.locator('[data-verdict=r]').click();
await page.waitForFunction(() => document.querySelector('#said pre.good, .card.done'));
console.log('answered');
console.log(JSON.stringify({ longest: await page.evaluate(() => globalThis.longest) }));
await browser.close();
