// A box to send a message to a teammate.

import { h } from './element.js';
import { post } from './server.js';

/** Makes the box. */
export function sendBox(name) {
  const [text, said] = [h('textarea', { rows: 1, 'aria-label': `Message to ${name}`, placeholder: `Message to ${name}` }), h('span.dim', { role: 'status' })];
  const send = async (event) => {
    event.preventDefault();
    if (!text.value.trim()) return;
    const [isDone, what] = await post('send', { to: name, text: text.value });
    said.textContent = what;
    if (isDone) text.value = '';
  };
  text.addEventListener('keydown', (key) => {
    if (key.key !== 'Enter' || key.shiftKey || key.isComposing) return;
    key.preventDefault();
    text.form.requestSubmit();
  });
  return h('form.send', { onsubmit: send }, h('div.acts', {}, text, h('button.yes', {}, 'Send'), said));
}
