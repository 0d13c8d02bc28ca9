# Packs what a teammate has committed. What is said here is about its own work alone: it can make it say what it likes.
enter
head=$(git rev-parse --verify --quiet 'HEAD^{commit}') || refuse "$T_WRITES has no commit" 'commit the work first'
task=$T_TASK
if [ -z "$task" ]; then
    task=$(git symbolic-ref --quiet HEAD | sed -n 's|^refs/heads/task/\([0-9][0-9]*\)$|\1|p') || true
fi
if [ -n "$T_SUBMIT" ]; then
    for state in rebase-merge rebase-apply MERGE_HEAD CHERRY_PICK_HEAD; do
        [ ! -e "$GIT_DIR/$state" ] || refuse "a rebase, merge or cherry-pick is under way in $T_WRITES" 'finish it, and submit again'
    done
    refuse_uncommitted 'commit it or discard it, and submit again'
fi
adds=1
read_tip
if git diff --quiet --no-ext-diff --no-textconv "$tip...$head" --; then
    adds=0
    [ -z "$T_SUBMIT" ] || refuse "HEAD of $T_WRITES adds nothing to the integration branch" 'commit the work (`git commit`), and submit again'
fi
[ -n "$task" ] || adds=0
if [ "$adds" = 1 ] && [ -n "${T_ON_HOST-}" ]; then
    # Their contents would stay here.
    lfs=$(git rev-list --objects --no-object-names "$head" --not "$tip" | lfs_ids | first 1)
    [ -z "$lfs" ] || refuse "the work adds files of Git LFS, which do not cross a link" 'add them at home, or as plain files'
fi
if [ "$adds" = 1 ]; then
    [ ! -e "$GIT_DIR/teamd.pack" ] && [ ! -L "$GIT_DIR/teamd.pack" ] || rm -f "$GIT_DIR/teamd.pack"
    # Nothing that the teammate puts there meanwhile is written to.
    set -o noclobber
    printf '%s\n^%s\n' "$head" "$tip" | git pack-objects --quiet --revs --thin --stdout --delta-base-offset >"$GIT_DIR/teamd.pack"
fi
say commit "$head"
say task "$task"
say adds "$adds"
