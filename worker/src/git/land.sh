# Fast-forwards a branch of the user to the integration branch. Only the user has this run.
believe_user
cd "$T_SOURCE"
publish "$T_SOURCE"
tip=$(git rev-parse --verify --quiet "$shown")
current=$(git symbolic-ref --quiet --short HEAD) || current=
branch=${T_INTO:-$current}
[ -n "$branch" ] || refuse "HEAD of $T_SOURCE is on no branch" 'name one: `teamctl land --into BRANCH`'
before=$(git rev-parse --verify --quiet "refs/heads/$branch^{commit}") || refuse "there is no branch $branch" '`git branch` lists them'
say branch "$branch"
say before "$before"
say tip "$tip"
# One that has commits of its own is integrated first, also if it contains the integration branch.
if [ "$before" = "$tip" ] || ! git merge-base --is-ancestor "$before" "$tip"; then
    say after "$before"
    exit
fi
# Has the files of the user's tree as they were: where a disk is full, git leaves some of them as they were to be. They had no changes, or
# it would have refused.
put_back() {
    git diff-tree -r -z --no-renames --name-only --diff-filter=A "$before" "$tip" | while IFS= read -r -d '' file; do
        rm -f -- "$file"
        rmdir -p --ignore-fail-on-non-empty -- "$(dirname -- "$file")" || true
    done
    git diff-tree -r -z --no-renames --name-only --diff-filter=a "$before" "$tip" | judge git checkout-index --force -z --stdin
}
# What git is asked here is what the user would ask: filters and line ends are theirs. None of their hooks runs.
forward() { said=$(judge git -c merge.autoStash=false merge --ff-only --no-overwrite-ignore --quiet --no-stat "$tip" 2>&1); }
cannot_move() {
    local why
    why=$(grep -E '^(error|fatal):' <<<"$said" | tail -n 1 || true)
    refuse "$branch cannot be moved: ${why#*: }" 'fix that, then land again'
}
overwritten() { sed -n 's/^\t//p' <<<"$said"; }
if [ "$branch" != "$current" ]; then
    trees=$(git worktree list --porcelain)
    grep -qxF "branch refs/heads/$branch" <<<"$trees" && refuse "$branch is checked out in another working tree" 'run `teamctl land` there, or name another branch'
    git update-ref -m 'teamctl land' "refs/heads/$branch" "$tip" "$before"
    say after "$(git rev-parse "refs/heads/$branch")"
    exit
fi
# Where it may not write them, they stay pointers.
common=$(git rev-parse --path-format=absolute --git-common-dir)
if has_lfs; then bring_lfs "$tip" "$common" || true; fi
# A filter that fails while git writes would leave it without the file that it has removed: so that is tried before.
git diff-tree -r -z --no-renames --name-only --diff-filter=d "$before" "$tip" | GIT_ATTR_SOURCE=$tip judge git check-attr -z --stdin filter >"$TMPDIR/filters"
tried=
while IFS= read -r -d '' file && IFS= read -r -d '' _ && IFS= read -r -d '' filter; do
    case $filter in
    unspecified | unset | set) continue ;;
    # All are the work of one program, and large.
    lfs) [ -z "$tried" ] || continue; tried=1 ;;
    esac
    said=$(GIT_ATTR_SOURCE=$tip judge git cat-file --filters "$tip:$file" 2>&1 >/dev/null) || cannot_move
done <"$TMPDIR/filters"
if ! forward && { [ -z "$(overwritten)" ] || ! changed >/dev/null || ! settle || ! forward; }; then
    files=$(overwritten | first 11 | paste -sd, | sed 's/,/, /g')
    [ -n "$files" ] && refuse "changes of yours that are not committed would be overwritten: $files" 'commit or stash them, and land again'
    [[ ! $said =~ 'unable to write file'|'unable to create '(file|symlink)|'cannot create directory at' ]] || put_back
    cannot_move
fi
say after "$(git rev-parse "refs/heads/$branch")"
if changed >/dev/null; then settle || true; fi
while IFS= read -r -d '' file && IFS= read -r -d '' _ && IFS= read -r -d '' filter; do
    [ "$filter" = lfs ] && [ -f "$file" ] && [ ! -L "$file" ] && grep -qam 1 '^version https://git-lfs' <(head -c 100 -- "$file") || continue
    say pointer "$file"
done <"$TMPDIR/filters"
