# Begins the branch of a task at the tip of the integration branch, and says which earlier work on it is kept.
enter
refuse_uncommitted 'commit it, stash it or discard it, and claim the task again'
git fetch --quiet origin
git checkout --quiet --no-track -B "task/$T_TASK" refs/remotes/origin/integration
git for-each-ref --sort=version:refname --format='%(refname)' "refs/team/task-$T_TASK/" | while IFS= read -r reference; do
    say kept "$reference"
done
