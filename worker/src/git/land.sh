# Fast-forwards a branch of the user to the integration branch. Only the user has this run.
cd "$T_SOURCE"
publish
tip=$(git rev-parse --verify --quiet refs/remotes/team/integration)
current=$(git symbolic-ref --quiet --short HEAD) || current=
branch=${T_INTO:-$current}
[ -n "$branch" ] || refuse "HEAD of $T_SOURCE is on no branch" 'name one: `teamctl land --into BRANCH`'
before=$(git rev-parse --verify --quiet "refs/heads/$branch^{commit}") || refuse "there is no branch $branch" '`git branch` lists them'
say branch "$branch"
say before "$before"
say tip "$tip"
if git merge-base --is-ancestor "$tip" "$before"; then
    say landed 1
    exit
fi
if ! git merge-base --is-ancestor "$before" "$tip"; then
    say landed 0
    exit
fi
# Has the files of the user's tree as they were: where a disk is full, git leaves some of them as they were to be. They had no changes, or
# it would have refused.
put_back() {
    git diff-tree -r -z --no-renames --name-only --diff-filter=A "$before" "$tip" | while IFS= read -r -d '' file; do
        rm -f -- "$file"
        rmdir -p --ignore-fail-on-non-empty -- "$(dirname -- "$file")" || true
    done
    git diff-tree -r -z --no-renames --name-only --diff-filter=a "$before" "$tip" | git checkout-index --force -z --stdin
}
if [ "$branch" != "$current" ]; then
    trees=$(git worktree list --porcelain)
    grep -qxF "branch refs/heads/$branch" <<<"$trees" && refuse "$branch is checked out in another working tree" 'run `teamctl land` there, or name another branch'
    git update-ref -m 'teamctl land' "refs/heads/$branch" "$tip" "$before"
elif ! said=$(git -c merge.autoStash=false merge --ff-only --no-overwrite-ignore --quiet --no-stat "$tip" 2>&1); then
    files=$(sed -n 's/^\t//p' <<<"$said" | first 11 | paste -sd, | sed 's/,/, /g')
    [ -n "$files" ] && refuse "changes of yours that are not committed would be overwritten: $files" 'commit or stash them, and land again'
    [[ ! $said =~ 'unable to write file'|'unable to create '(file|symlink)|'cannot create directory at' ]] || put_back
    why=$(grep -E '^(error|fatal):' <<<"$said" | tail -n 1 || true)
    refuse "$branch cannot be moved: ${why#*: }" 'fix that, then land again'
fi
say landed 1
