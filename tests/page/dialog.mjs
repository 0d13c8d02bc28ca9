// Opens and closes a text over the page without a browser: of the page there is as much as `dialog.js` touches.
//
//   node dialog.mjs DIALOG_JS
//
// Prints how many dialogs are open and how long the history is, after each step.

const page = new EventTarget();
const entries = [null];
class Element extends EventTarget {
  children = [];
  dataset = {};
  constructor(tag) { super(); this.localName = tag; }
  setAttribute(name, value) { this[name] = value; }
  append(...children) { this.children.push(...children); }
  remove() { body.children = body.children.filter((child) => child !== this); }
  showModal() { this.open = true; }
  close() { this.open = false; this.dispatchEvent(new Event('close')); }
}
const body = new Element('body');
globalThis.document = Object.assign(new EventTarget(), { body, createElement: (tag) => new Element(tag) });
globalThis.addEventListener = page.addEventListener.bind(page);
globalThis.removeEventListener = page.removeEventListener.bind(page);
globalThis.history = {
  pushState: (state) => entries.push(state),
  back: () => { entries.pop(); page.dispatchEvent(new Event('popstate')); },
};

const { open } = await import(process.argv[2]);
const tell = (step) => console.log(`${step}: ${body.children.length} open, ${entries.length} in the history`);
open('Task 1', 'text');
open('Task 1', 'again');
tell('opened twice');
history.back();
tell('back');
open('Task 2', 'text');
body.children[0].children.at(-1).dispatchEvent(new Event('click'));
tell('closed');
open('Task 3', 'text');
body.children[0].close();
tell('Escape');
