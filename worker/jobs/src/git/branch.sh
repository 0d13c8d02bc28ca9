# Begins the branch of a task at the tip of the integration branch, and says which earlier work on it is kept.
enter
refuse_uncommitted 'commit it, stash it or discard it, and claim the task again'
settle
[ ! -e "$team/shallow" ] || cmp -s "$team/shallow" "$GIT_DIR/shallow" || cp -- "$team/shallow" "$GIT_DIR/shallow"
# One that is gone may stand where another is to be.
git fetch --quiet origin || git fetch --quiet --prune origin
branch=task/$T_TASK
git for-each-ref --sort=version:refname --format='%(refname)' "refs/team/task-$T_TASK/" | while IFS= read -r reference; do
    say kept "$reference"
done
# Commits that are nowhere else stay, under another name.
set_aside() {
    [ -n "$(unsaved "$1")" ] || return 0
    local number=1
    while git show-ref --quiet --verify "refs/heads/$2-$number"; do number=$((number + 1)); done
    git update-ref "refs/heads/$2-$number" "$1" ''
    say kept "$2-$number"
}
if old=$(git rev-parse --verify --quiet "refs/heads/$branch^{commit}"); then
    set_aside "$old" "$branch"
fi
if ! git symbolic-ref --quiet HEAD && [ -z "$(git for-each-ref --count=1 --contains HEAD refs/heads)" ]; then
    set_aside "$(git rev-parse HEAD)" "$branch"
fi
if has_lfs; then bring_lfs refs/remotes/origin/integration .git; fi
judge git checkout --quiet --no-track -B "$branch" refs/remotes/origin/integration
