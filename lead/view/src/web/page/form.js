// Forms over the page. What is wrong is said by the server, in the words of `teamctl`, above the fields.

import { lay, tell } from './dialog.js';
import { h } from './element.js';
import { post } from './server.js';

let count = 0;

function control({ name, type, value, rows, options, required }, id, hint) {
  const all = { id, name, required, 'aria-describedby': hint && `${id}-hint` };
  if (type === 'area') {
    const area = h('textarea', { ...all, rows: rows ?? 4 });
    area.value = value ?? '';
    return area;
  }
  if (type === 'check') return h('input', { ...all, type: 'checkbox', checked: Boolean(value) });
  if (type === 'choice') return h('select', all, options.map(([it, text]) => h('option', { value: it, selected: it === (value ?? '') }, text)));
  return h('input', { ...all, type: 'text', value: value ?? '', autocomplete: 'off', spellcheck: 'false', list: options && `${id}-list` });
}

function row(field) {
  count += 1;
  const id = `field-${count}`;
  const input = control(field, id, field.hint);
  const label = h('label', { for: id }, field.label, field.required && h('span.dim', {}, ' (needed)'));
  const hint = field.hint && h('p.hint', { id: `${id}-hint` }, field.hint);
  const list = field.options && field.type !== 'choice' && h('datalist', { id: `${id}-list` }, field.options.map((value) => h('option', { value })));
  return field.type === 'check' ? h('div.field.check', {}, input, label, hint) : h('div.field', {}, label, input, hint, list);
}

function valuesOf(form, fields) {
  const all = {};
  for (const { name, type } of fields) all[name] = type === 'check' ? form.elements[name].checked : form.elements[name].value;
  return all;
}

/**
 * Asks for the fields of an order, and gives it. `body(values)` makes the order, or nothing where there is nothing to do; `waits` is said
 * while it is carried out, `done(said)` goes on from there.
 */
export function fill({ title, intro, fields = [], button, kind, body, waits, done, isBad }) {
  const failed = h('pre.failed', { role: 'alert', hidden: true, tabindex: -1 });
  const now = h('span.dim', { role: 'status' });
  const go = h(`button.${isBad ? 'no' : 'yes'}`, { type: 'submit' }, button);
  const submit = async (event) => {
    event.preventDefault();
    const order = body(valuesOf(form, fields));
    if (!order) return void close();
    go.disabled = true;
    failed.hidden = true;
    now.textContent = waits ?? 'one moment…';
    const [isDone, said] = await post(kind, order);
    go.disabled = false;
    now.textContent = '';
    if (!dialog.isConnected || isDone) tell(isDone, said);
    if (isDone) return void close(() => done?.(said));
    failed.textContent = said;
    failed.hidden = false;
    failed.focus();
  };
  const form = h('form', { onsubmit: submit }, fields.map(row), h('div.acts', {}, go, h('button', { type: 'button', onclick: () => dialog.close() }, 'Cancel'), now));
  const dialog = h('dialog.form', { 'aria-label': title }, h('h2', {}, title), intro && h('p', {}, intro), failed, form);
  const close = lay(dialog);
  if (close) form.querySelector('input, textarea, select, button')?.focus();
}
