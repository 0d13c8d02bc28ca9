// Works on the page as a person does: with forms, buttons, the keyboard and Back. Prints what came of each step.
//
//   node work.mjs CHROMIUM ADDRESS
//
// The team has the teammate `ana`, who waits for the answer to a plan, and `bo`, who rejects a shutdown. Fails at an error of the page.

import { chromium } from 'playwright-core';

const [, , executablePath, address] = process.argv;
const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu'] });
const page = await browser.newPage({ viewport: { width: 1280, height: 800 } });
page.setDefaultTimeout(20000);
page.on('pageerror', (error) => { throw error; });
const view = () => page.evaluate(() => location.hash);
const at = (hash) => page.waitForFunction((hash) => location.hash === hash && document.body.dataset.shown === hash.split('/')[1], hash);
const closed = () => page.waitForFunction(() => !document.querySelector('dialog'));
const focused = () => page.evaluate(() => document.activeElement?.textContent.trim());
await page.goto(address);
await page.waitForSelector('body[data-shown=overview]');

// A task, by the keyboard, with a mistake first.
await page.keyboard.press('n');
await page.getByLabel('Subject').fill('Greet politely');
await page.getByLabel('For', { exact: true }).fill('nobody');
await page.getByRole('button', { name: 'Add the task' }).click();
const failed = page.locator('dialog .failed:visible');
await failed.waitFor();
console.log('refused:', (await failed.textContent()).split('\n')[0]);
console.log('kept:', await page.getByLabel('Subject').inputValue());
await page.getByLabel('For', { exact: true }).fill('');
await page.getByLabel('Check').fill('true');
await page.keyboard.press('Enter');
await at('#/task/1');
await closed();
console.log('task:', await page.locator('h2.title').textContent());

// Edited; the form closes with Back, and the view below stays.
await page.getByRole('button', { name: 'Edit' }).click();
await page.waitForSelector('dialog[open]');
await page.goBack();
await closed();
console.log('back from the form:', await view());
await page.getByRole('button', { name: 'Edit' }).click();
await page.getByLabel('Description').fill('# Hello\n\nby name');
await page.getByRole('button', { name: 'Save' }).click();
await closed();
await page.locator('.md h3', { hasText: 'Hello' }).waitFor();
await page.getByRole('button', { name: 'Cancel' }).click();
await page.getByRole('button', { name: 'Cancel the task' }).click();
await page.getByRole('button', { name: 'Try again' }).waitFor();
console.log('cancelled:', await page.locator('h2.title + p strong').textContent());
await page.getByRole('button', { name: 'Try again' }).click();
await page.locator('dialog').getByRole('button', { name: 'Try again' }).click();
await closed();
await page.locator('h2.title + p strong', { hasText: 'pending' }).waitFor();
console.log('open again:', await page.locator('h2.title + p strong').textContent());

// Each thing has an address that survives a reload, and Back leads where it was opened from.
await page.reload();
await page.waitForSelector('body[data-shown=task]');
console.log('reloaded:', await page.locator('h2.title').textContent());
await page.keyboard.press('3');
await at('#/board');
await page.keyboard.press('j');
console.log('selected:', await focused());
await page.keyboard.press('Enter');
await at('#/task/1');
await page.goBack();
await at('#/board');
await page.goForward();
await at('#/task/1');

// A teammate: a shutdown that it rejects, an interruption, a plan.
await page.keyboard.press('1');
await at('#/overview');
await page.locator('.members').getByRole('link', { name: 'bo' }).click();
await at('#/teammate/bo');
await page.getByRole('button', { name: 'Shut down' }).click();
await page.getByLabel('Reason').fill('we are done');
await page.locator('dialog').getByRole('button', { name: 'Shut down' }).click();
await failed.waitFor();
console.log('rejected:', (await failed.textContent()).split('\n')[0]);
await page.keyboard.press('Escape');
await closed();
await page.getByRole('button', { name: 'Interrupt' }).click();
await page.locator('#said', { hasText: 'interrupted bo' }).waitFor();
await page.getByRole('button', { name: 'Ask for a plan' }).click();
await page.locator('dialog').getByRole('button', { name: 'Ask' }).click();
await closed();
await page.locator('#said', { hasText: 'bo is asked for a plan' }).waitFor();

// A new one.
await page.keyboard.press('s');
await page.getByLabel('Name').fill('cy');
await page.getByLabel('Role').fill('tester');
await page.getByLabel('Model').fill('script');
await page.getByLabel('First task').fill('/bash echo old > a.txt; for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo line $i; done\n/edit_file {"path": "a.txt", "old_text": "old", "new_text": "new"}\n/bash echo bad; exit 3\nThe end.');
await page.getByRole('button', { name: 'Spawn', exact: true }).last().click();
await closed();
await page.evaluate(() => { location.hash = '#/conversation/cy'; });
await at('#/conversation/cy');
await page.locator('.turn.answer', { hasText: 'The end.' }).waitFor();
const calls = page.locator('.turn.call');
console.log('calls:', await calls.count(), '|', await calls.nth(0).locator('.command').textContent());
console.log('lines:', (await calls.nth(0).locator('pre.out').allTextContents()).join('\n').split('\n').join(','), '|', await calls.nth(0).locator('button').textContent());
console.log('changed:', (await calls.nth(1).locator('.diff').textContent()).trim().split('\n').join(','));
console.log('failed:', await calls.nth(2).locator('.top .bad').textContent());
await page.keyboard.press('/');
await page.keyboard.type('exit 3');
console.log('found:', await page.locator('.turn.call:visible').count());
await page.keyboard.press('Escape');

// Answers, by the keyboard: the first key selects.
await page.keyboard.press('2');
await at('#/requests');
await page.waitForFunction(() => !document.querySelector('[data-verdict=a]').disabled);
await page.waitForTimeout(400);
await page.keyboard.press('j');
await page.keyboard.press('r');
await page.keyboard.type('keep the cache');
await page.keyboard.press('Escape');
await page.keyboard.press('r');
await page.keyboard.press('r');
await page.locator('#said', { hasText: 'rejected' }).waitFor();
await page.keyboard.press('?');
await page.locator('dialog.keys').waitFor();
await page.keyboard.press('Escape');
await closed();
console.log('end:', await view());
await page.evaluate(() => { location.hash = '#/task/99'; });
await page.getByText('task 99: there is no such thing').waitFor();
await browser.close();
