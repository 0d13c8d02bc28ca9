// The images of a conversation. They are fetched with the key and painted: the page loads no image from any address, and nothing in a
// file can run, be a document, or ask for anything.

import { lay } from './dialog.js';
import { h } from './element.js';
import { ask } from './server.js';

const KINDS = new Set(['image/png', 'image/jpeg', 'image/webp', 'image/gif']);
/** How large an image is in a conversation, at most. */
const [WIDEST, HIGHEST] = [480, 320];

/** Fetches an image and paints it, in so many pixels. */
async function paint(canvas, address, width, height) {
  try {
    const answer = await ask(address);
    const file = await answer.blob();
    if (!answer.ok || !KINDS.has(file.type)) throw new Error('no image');
    const bitmap = await createImageBitmap(file, { resizeWidth: width, resizeHeight: height, resizeQuality: 'high' });
    [canvas.width, canvas.height] = [width, height];
    canvas.getContext('2d').drawImage(bitmap, 0, 0);
    bitmap.close();
    canvas.dataset.painted = '';
  } catch {
    canvas.replaceWith(h('span.dim', {}, 'this image cannot be shown'));
  }
}

/** Lays an image over the page, as large as it is. */
function enlarge(address, { text, size }) {
  const canvas = h('canvas', { role: 'img', 'aria-label': text });
  const dialog = h('dialog.image', { 'aria-label': text }, h('h2', {}, text), h('div.scroll', { tabindex: 0, role: 'region', 'aria-label': 'The image' }, canvas),
    h('button', { onclick: () => dialog.close() }, 'Close'));
  lay(dialog);
  paint(canvas, address, ...size);
}

/** Shows an image of a result small, once it is on the screen; of one that is not shown it says why. */
export function image(address, facts) {
  const { text, size } = facts;
  if (!size) return h('p.dim', {}, text);
  const part = Math.min(1, WIDEST / size[0], HIGHEST / size[1]);
  const [width, height] = size.map((pixels) => Math.max(1, Math.round(pixels * part)));
  const canvas = h('canvas', { width, height, role: 'img', 'aria-label': text });
  const observer = new IntersectionObserver((seen) => {
    if (!seen.some((entry) => entry.isIntersecting)) return;
    observer.disconnect();
    const sharp = Math.min(1 / part, devicePixelRatio);
    paint(canvas, address, Math.max(1, Math.round(width * sharp)), Math.max(1, Math.round(height * sharp)));
  });
  observer.observe(canvas);
  // Its size stays as it is painted.
  canvas.style.aspectRatio = `${width} / ${height}`;
  canvas.style.width = `${width}px`;
  return h('figure', {}, h('button.picture', { type: 'button', title: 'full size', onclick: () => enlarge(address, facts) }, canvas), h('figcaption.dim', {}, text));
}
