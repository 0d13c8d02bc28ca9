# Takes a pack that a teammate has made into the team repository: each object is examined, and nothing may be missing.
export GIT_DIR=$T_WRITES
cd /
known() { git for-each-ref --format='%(refname)' --contains "$T_COMMIT" "refs/team/task-$T_TASK/" | head -n 1; }
: >"$log"
if git cat-file -e "$T_COMMIT^{commit}" && reference=$(known) && [ -n "$reference" ]; then
    say kept "$reference"
    exit
fi
if ! git index-pack --strict --fix-thin --stdin <"$T_PACK"; then
    why=$(grep -E '^(error|fatal):' "$log" | tail -n 1 || true)
    refuse "the work is refused: ${why#*: }" 'make a commit without what is named, and submit again'
fi
git cat-file -e "$T_COMMIT^{commit}" || refuse "HEAD moved while it was taken" 'submit again'
git rev-list --objects --quiet "$T_COMMIT" --not --branches ||
    refuse 'the work is refused: objects are missing' 'make the commits again, on the branch of the task'
last=$(git for-each-ref --format='%(refname:lstrip=3)' "refs/team/task-$T_TASK/" | sort -n | tail -n 1)
reference=refs/team/task-$T_TASK/$((${last:-0} + 1))
git update-ref "$reference" "$T_COMMIT" ''
say kept "$reference"
