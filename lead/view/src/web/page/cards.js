// Requests as cards: what is asked, and the answer. What was not shown whole cannot be approved.

import { tell } from './dialog.js';
import { age, h, keep, markdown } from './element.js';
import { post } from './server.js';

/** A text of more lines is shown clipped in the overview, and can be answered only where all of it is. */
const CLIP = 7;
/** How long a card must have stood still before it can be answered. */
const SETTLES = 300;

/** When cards last moved: a click just then may be meant for another one. */
let moved = 0;

/** Calls back once the end of an element has been on the screen. */
function whenRead(element, then) {
  const end = h('span');
  element.append(end);
  const observer = new IntersectionObserver((seen) => {
    if (!seen.some((entry) => entry.isIntersecting)) return;
    observer.disconnect();
    then();
  });
  observer.observe(end);
}

/** Gives the answer; that to a review has the comments on its lines. */
async function send(answer, comments) {
  if (!comments) return post('answer', answer);
  return post('review', { ...answer, work: comments.work, comments: comments.all });
}

function verdicts(request, body, said, comments) {
  const feedback = h('input', { name: 'feedback', 'aria-label': `Feedback for ${request.member}`, placeholder: `feedback to ${request.member} (needed to reject)` });
  const unread = h('span.dim', {}, 'read to the end to approve');
  const answer = (approve) => async () => {
    if (performance.now() - moved < SETTLES) {
      said.textContent = 'nothing was answered: this card has just moved, look again';
    } else if (document.querySelector('.changes form.remark textarea:not(:placeholder-shown)')) {
      said.textContent = 'nothing was answered: a comment is not kept yet';
    } else if (!approve && !feedback.value.trim() && !comments?.all.length) {
      feedback.focus();
      said.textContent = 'say why, so that it can do better';
    } else {
      const wasDisabled = yes.disabled;
      yes.disabled = no.disabled = true;
      const [isDone, text] = await send({ id: request.id, approve, feedback: feedback.value, code: request.code }, comments);
      said.textContent = text;
      if (isDone) {
        comments?.forget();
        tell(true, text);
      }
      no.disabled = isDone;
      yes.disabled = isDone || wasDisabled;
    }
  };
  const yes = h('button.yes', { 'data-verdict': 'a', disabled: true, title: 'enabled once the end of the text was on the screen', onclick: answer(true) }, 'Approve');
  const no = h('button.no', { 'data-verdict': 'r', onclick: answer(false) }, 'Reject');
  // Work that is still being read was not on the screen.
  Promise.resolve(body.ready).then(() => whenRead(body.whole ?? body, () => {
    yes.disabled = !request.whole;
    if (request.whole) unread.textContent = '';
  }));
  const code = request.code && h('span.dim', {}, `code ${request.code}`);
  const count = h('span.need');
  const told = (some) => { count.textContent = some ? `${some === 1 ? '1 comment goes' : `${some} comments go`} to ${request.member}` : ''; };
  comments?.told.push(told);
  return [feedback, yes, no, unread, count, code];
}

/** Makes the card of a request. With `workOf` all of it is shown, with the work that a review is about, and the comments on that. */
export function card(request, workOf, state) {
  const body = markdown(request.text);
  const said = h('span.dim', { role: 'status' });
  const isReview = request.kind === 'review';
  const isClipped = !workOf && (isReview || request.lines > CLIP || request.text.length > 100 * CLIP);
  if (isClipped && !isReview) body.classList.add('clip');
  const place = `#/request/${request.id}`;
  const { work, comments } = (isReview && request.task && workOf?.(request, state)) || {};
  const acts = () => {
    if (!request.judged) return [h('span.dim', {}, `Only ${request.member} answers this.`)];
    if (isClipped) return [h('a.button', { href: place }, isReview ? 'See the work, and answer' : `Read all ${request.lines} lines, and answer`)];
    if (state.read_only) return [];
    return verdicts(request, work || body, said, comments);
  };
  const tooLong = !request.whole && h('p.bad', {}, `The text is too long for a page: \`teamctl plans ${request.id}\` shows all of it.`);
  return h(`article.card${work ? '.work-of' : ''}`, { 'aria-label': `${request.kind} of ${request.member}`, 'data-request': request.id },
    h('div.top', {}, h('a.name', { href: `#/teammate/${request.member}` }, request.member), h('span.need', {}, request.kind), h('span.dim', {}, age(request.since), ' ago'),
      h('a.id.right', { href: place, 'data-item': '' }, request.id)),
    body, tooLong, work, h(`div.acts${work ? '.answer' : ''}`, {}, acts(), said));
}

/** Shows the cards of requests, and notes when they move. */
export function drawCards(list, requests, workOf, state) {
  const order = () => [...list.children].map((child) => child.dataset.key).join();
  const before = order();
  keep(list, requests, (request) => request.id, (request) => card(request, workOf, state));
  if (before && before !== order()) moved = performance.now();
}
