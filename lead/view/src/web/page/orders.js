// What a person can order: each is a command of `teamctl`, with a form where it needs words.

import { tell } from './dialog.js';
import { fill } from './form.js';
import { post } from './server.js';

const goto = (place) => { location.hash = `#/${place}`; };
const REVIEW = [['', 'nobody, unless a protected file was changed'], ['person', 'a person'], ['lead', 'the lead']];

const namesOf = (state) => (state.names ?? (state.groups ?? []).flatMap((group) => group.members.map((member) => member.name))).filter((name) => name !== 'lead');

function fieldsOf(task, state) {
  return [
    { name: 'subject', label: 'Subject', value: task.subject, required: true, hint: 'What is to be done, in one line.' },
    { name: 'description', label: 'Description', type: 'area', rows: 6, value: task.description },
    { name: 'check', label: 'Check', value: task.check, hint: 'A command that must exit with 0; the check of the team runs before it.' },
    { name: 'for', label: 'For', value: task.for, options: namesOf(state), hint: 'Only this teammate or role may claim it.' },
    { name: 'later', label: 'No teammate has this name or role yet', type: 'check' },
    { name: 'after', label: 'After', value: (task.after ?? []).join(', '), hint: 'Tasks that must be completed first, such as 1, 2.' },
    { name: 'review', label: 'Who must approve the work', type: 'choice', value: task.review, options: REVIEW },
  ];
}

/** Makes a task. */
export function addTask(state) {
  const given = (values) => Object.fromEntries(Object.entries(values).filter(([, value]) => value));
  fill({ title: 'New task', fields: fieldsOf({}, state), button: 'Add the task', kind: 'add_task', body: (values) => ({ subject: '', ...given(values) }), done: (said) => goto(`task/${parseInt(said, 10)}`) });
}

/** Returns the fields that are others than before. An empty check or review is `none`. */
function changes(task, values) {
  const before = { ...task, after: (task.after ?? []).join(', ') };
  const changed = Object.entries(values).filter(([name, value]) => value !== (before[name] ?? (name === 'later' ? false : '')));
  return Object.fromEntries(changed.map(([name, value]) => [name, !value && ['check', 'review'].includes(name) ? 'none' : value]));
}

function change(task, state, more) {
  fill({ fields: fieldsOf(task, state), ...more });
}

/** Changes a task. */
export const editTask = (task, state) => change(task, state, {
  title: `Edit task ${task.id}`, button: 'Save', kind: 'edit_task',
  body: (values) => ({ id: task.id, ...changes(task, values) }),
});

/** Opens a failed or cancelled task again, with changes. */
export const retryTask = (task, state) => change(task, state, {
  title: `Try task ${task.id} again`, intro: 'It is open again, with these changes: an idle teammate may take it at once.', button: 'Try again', kind: 'retry_task',
  body: (values) => ({ id: task.id, ...changes(task, values) }),
});

/** Cancels a task. */
export const cancelTask = (task) => fill({ title: `Cancel task ${task.id}?`, intro: task.subject, button: 'Cancel the task', isBad: true, kind: 'cancel_task', body: () => ({ id: task.id }) });

/** Starts a teammate. */
export function spawn(state) {
  fill({
    title: 'Spawn a teammate', button: 'Spawn', kind: 'spawn', waits: 'it is starting…',
    fields: [
      { name: 'name', label: 'Name', required: true, hint: '1 to 32 characters of a-z, 0-9, _ and -' },
      { name: 'role', label: 'Role', hint: 'Such as reviewer.' },
      { name: 'agent', label: 'Agent', options: ['builtin', 'claude', 'codex', 'opencode', 'gemini'], hint: 'Without one: as team.toml says, or the built-in agent.' },
      { name: 'model', label: 'Model', options: ['script', 'anthropic', 'openai'], hint: 'PROVIDER or PROVIDER:MODEL. Without one: by the API key that is set, else script.' },
      { name: 'prompt', label: 'First task', type: 'area' },
      { name: 'plan', label: 'It submits a plan, and changes nothing before that is approved', type: 'check' },
      { name: 'auto', label: 'It is given the next task whenever it is idle', type: 'check' },
      { name: 'checkout', label: 'It works in its own clone of the repository', type: 'check' },
    ],
    body: (values) => values,
    done: () => {},
  });
}

/** Starts a teammate that has ended again, with its conversation. */
export const startAgain = (name) => fill({
  title: `Start ${name} again`, intro: 'It continues its conversation, beginning with its unread messages.', button: 'Start', kind: 'spawn', waits: 'it is starting…',
  fields: [{ name: 'prompt', label: 'Next message', type: 'area', hint: 'May be empty.' }],
  body: ({ prompt }) => ({ name, prompt, resume: true }),
});

/** Interrupts what a teammate does. */
export async function interrupt(name) {
  tell(...await post('interrupt', { name }));
}

/** Asks a teammate to leave. */
export const shutdown = (name) => fill({
  title: `Shut ${name} down`, button: 'Shut down', isBad: true, kind: 'shutdown', waits: `waiting for the answer of ${name}…`,
  intro: 'An idle teammate exits at once. A working one may reject the request: its reason is shown, and it keeps working.',
  fields: [
    { name: 'text', label: 'Reason', type: 'area', rows: 2, hint: 'Its model gets it.' },
    { name: 'force', label: 'End it even if it rejects: it is sent signals after 10 s', type: 'check' },
  ],
  body: (values) => ({ name, ...values }),
});

/** Asks a teammate for a plan. */
export const requestPlan = (name) => fill({
  title: `Ask ${name} for a plan`, button: 'Ask', kind: 'request_plan', waits: 'waiting until what runs has ended…',
  intro: 'It may change nothing until a plan of it is approved.',
  fields: [{ name: 'text', label: 'What the plan is about', type: 'area', hint: 'Without a text: “Submit a plan before you change anything else.”' }],
  body: (values) => ({ name, ...values }),
});
