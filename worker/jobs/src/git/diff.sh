# Shows what a commit, or a checkout in its present state, changes against where it left the integration branch.
if [ -n "$T_COMMIT" ]; then
    export GIT_DIR=$T_WRITES
    cd /
    tip=refs/heads/integration
    # What is integrated is shown against its first parent.
    if git merge-base --is-ancestor "$T_COMMIT" "$tip"; then base=$T_COMMIT^; else base=$(git merge-base "$T_COMMIT" "$tip"); fi
    set -- git diff "$base" "$T_COMMIT"
else
    enter
    judge git ls-files --others --exclude-standard | first 50 | while IFS= read -r file; do say untracked "$file"; done
    set -- judge git -c diff.noprefix=false -c diff.mnemonicPrefix=false diff "$(git merge-base HEAD refs/remotes/origin/integration)"
fi
"$@" --stat --patch --no-color --no-ext-diff --no-textconv --ignore-submodules=dirty -- | sed 's/^/diff=/' >&3
