// What lies over the page: one text or one form at a time. It has an entry of its own in the history: Back closes it, and the view below stays.

import { h } from './element.js';

let over = null;

/** Lays a dialog over the page; returns what closes it, and then does something. */
export function lay(dialog) {
  if (over) return null;
  let next = () => {};
  const left = () => {
    removeEventListener('popstate', left);
    dialog.remove();
    over = null;
    next();
  };
  dialog.addEventListener('close', () => {
    // Closed by hand: its entry goes, and then it is as if Back had been pressed.
    if (over === dialog) history.back();
  });
  addEventListener('popstate', left);
  history.pushState(null, '');
  over = dialog;
  document.body.append(dialog);
  dialog.showModal();
  return (then) => {
    if (over !== dialog) return;
    next = then ?? next;
    dialog.close();
  };
}

/** Tells whether something lies over the page. */
export const isCovered = () => over !== null;

/** Opens a text over the page. */
export function open(title, text) {
  const dialog = h('dialog', { 'aria-label': title }, h('h2', {}, title), h('pre', { tabindex: 0 }, text),
    h('button', { onclick: () => dialog.close() }, 'Close'));
  lay(dialog);
}

let timer = 0;

/** Says what came of an order, for a moment; what failed stays until it is clicked. */
export function tell(isDone, text) {
  const said = document.querySelector('#said');
  said.replaceChildren(text && h('pre', { class: isDone ? 'good' : 'bad' }, text), text && h('button', { 'aria-label': 'Close', onclick: () => said.replaceChildren() }, '×'));
  clearTimeout(timer);
  if (isDone) timer = setTimeout(() => said.replaceChildren(), 6000);
}
