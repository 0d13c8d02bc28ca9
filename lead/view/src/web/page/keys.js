// The keyboard: to move, to open, to answer. No key does anything while something is typed.

import { isCovered, lay } from './dialog.js';
import { h } from './element.js';

const HELP = [['j k', 'the next, the one before'], ['Enter', 'open it'], ['a', 'approve the request that is selected'], ['r', 'reject it: first its feedback, then again r or Enter'],
  ['c', 'comment on the line of a diff that is selected'], ['/', 'search'], ['n', 'new task'], ['s', 'spawn a teammate'], ['1 – 7', 'the views'], ['Esc', 'back'], ['?', 'this help']];

/** Shows the keys. */
export function help() {
  const dialog = h('dialog.keys', { 'aria-label': 'Keys' }, h('h2', {}, 'Keys'), h('dl.facts', {}, HELP.map(([key, what]) => [h('dt', {}, key.split(' ').map((one) => (one === '–' ? ' – ' : [h('kbd', {}, one), ' ']))), h('dd', {}, what)])),
    h('button', { onclick: () => dialog.close() }, 'Close'));
  lay(dialog);
}

const visible = (element) => element.checkVisibility?.() ?? true;

function move(by) {
  const items = [...document.querySelectorAll('main [data-item]')].filter(visible);
  const at = items.indexOf(document.activeElement?.closest('[data-item]') ?? document.activeElement?.closest('.card')?.querySelector('[data-item]'));
  const next = items[at < 0 ? (by > 0 ? 0 : items.length - 1) : Math.min(items.length - 1, Math.max(0, at + by))];
  next?.focus();
  next?.scrollIntoView({ block: 'nearest' });
}

/** The card in which the selection is, or the only one. */
function selected() {
  const within = document.activeElement?.closest('.card');
  if (within) return within;
  const cards = document.querySelectorAll('main .card[data-request]');
  return cards.length === 1 ? cards[0] : null;
}

function answer(key) {
  const card = selected();
  const button = card?.querySelector(`[data-verdict=${key}]`);
  if (!button) return move(1);
  const feedback = card.querySelector('[name=feedback]');
  if (key === 'r' && !feedback.value.trim()) feedback.focus();
  // The first key selects, the next one answers: a key that was meant for another place answers nothing.
  else if (document.activeElement === button) button.click();
  else button.focus();
  return undefined;
}

/** Returns to where this view was opened from. */
function back() {
  if (document.activeElement !== document.body && document.activeElement?.matches('main *')) document.activeElement.blur();
  else if (history.length > 1) history.back();
}

/** Takes keys from now on; `orders` are what n and s begin, `places` the views. */
export function take(orders, places) {
  const keys = { j: () => move(1), k: () => move(-1), a: () => answer('a'), r: () => answer('r'), '?': help, Escape: back, ...orders };
  addEventListener('keydown', (key) => {
    const isTyping = key.target.matches?.('input:not([type=checkbox]), textarea, select');
    if (isTyping && key.key === 'Escape' && !isCovered()) key.target.blur();
    if (key.ctrlKey || key.metaKey || key.altKey || isTyping || isCovered() || key.defaultPrevented) return;
    const find = key.key === '/' && document.querySelector('main input[type=search]');
    const place = places[Number(key.key) - 1];
    if (!keys[key.key] && !find && !place) return;
    key.preventDefault();
    if (find) find.focus();
    else if (place) location.hash = `#/${place}`;
    else keys[key.key]();
  });
}
