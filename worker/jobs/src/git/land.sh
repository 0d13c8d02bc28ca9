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
# Notes what git may touch and no edit of the user lies in: the files that are there and unchanged, in the index and in the tree, and what is
# not there, with the directories on the way to it. A file that is staged as it will be, and edited since, is one that git leaves alone.
declare -A edited=() missing=()
unchanged=()
note() {
    local entry file at
    changed >/dev/null || return 0
    while IFS= read -r -d '' entry; do
        case $entry in
        '? '*) ;;
        'u '*) edited[${entry#* * * * * * * * * * }]=1 ;;
        *) edited[${entry#* * * * * * * * }]=1 ;;
        esac
    done <"$TMPDIR/status"
    while IFS= read -r -d '' file; do edited[$file]=; done <"$TMPDIR/unchanged"
    while IFS= read -r -d '' file; do
        if [ ! -e "./$file" ] && [ ! -L "./$file" ]; then
            at=$file
            until [ -e "./$at" ] || [ -L "./$at" ]; do
                missing[$at]=1
                [[ $at == */* ]] || break
                at=${at%/*}
            done
        elif [ -z "${edited[$file]-}" ]; then
            unchanged+=("$file")
        fi
    done <"$TMPDIR/touched"
}
# Shows which of the files that were unchanged are not as they were.
differing() {
    local file
    declare -A now=()
    while IFS= read -r -d '' file; do now[$file]=1; done < <(judge git --no-optional-locks diff -z --name-only --no-renames --no-ext-diff --no-textconv --ignore-submodules=all)
    for file in "${unchanged[@]}"; do
        [ -z "${now[$file]-}" ] || printf '%s\n' "${file//$'\n'/ }"
    done
}
# Has the files of the user's tree as they were, and names them: where a disk is full, git leaves some of them as they were to be. What lies
# beyond a link is none of them.
put_back() {
    local file at top
    top=$(pwd -P)
    # What lies below a directory comes before it.
    [ "${#missing[@]}" = 0 ] || printf '%s\0' "${!missing[@]}" | LC_ALL=C sort -rz >"$TMPDIR/missing"
    [ ! -s "$TMPDIR/missing" ] || while IFS= read -r -d '' file; do
        [ -e "./$file" ] || [ -L "./$file" ] || continue
        at=/$file
        at=${at%/*}
        [ "$(realpath -qe -- "./$at")" = "$top$at" ] || continue
        if [ -d "./$file" ] && [ ! -L "./$file" ]; then
            rmdir --ignore-fail-on-non-empty -- "./$file" || true
        else
            printf '%s\n' "${file//$'\n'/ }"
            rm -f -- "./$file" || true
        fi
    done <"$TMPDIR/missing"
    differing
    [ "${#unchanged[@]}" = 0 ] || printf '%s\0' "${unchanged[@]}" | judge git checkout-index --force -z --stdin || true
}
# What git is asked here is what the user would ask: filters and line ends are theirs. None of their hooks runs.
forward() { said=$(judge git -c merge.autoStash=false merge --ff-only --no-overwrite-ignore --quiet --no-stat "$tip" 2>&1); }
cannot_move() {
    local why next='fix that, then land again'
    why=$(grep -E '^(error|fatal):' <<<"$said" | tail -n 1 || true)
    [[ $why != *' filter '*failed* ]] ||
        next+='; what a filter reads below a dot folder of the home is hidden, unless `[sandbox] visible` of team.toml names it (`teamd trust`)'
    refuse "$branch cannot be moved: ${why#*: }${back:+; put back: $back}${left:+; not as before: $left}" "$next"
}
back='' left=''
named() { first 11 | paste -sd, | sed 's/,/, /g'; }
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
git diff-tree -r -z --no-renames --name-only "$before" "$tip" >"$TMPDIR/touched"
note
if ! forward && { [ -z "$(overwritten)" ] || ! changed >/dev/null || ! settle || ! forward; }; then
    files=$(overwritten | named)
    [ -n "$files" ] && refuse "changes of yours that are not committed would be overwritten: $files" 'commit or stash them, and land again'
    if [[ $said =~ 'unable to write file'|'unable to create '(file|symlink)|'cannot create directory at' ]]; then
        back=$(put_back | named)
        left=$(differing | named)
    fi
    cannot_move
fi
say after "$(git rev-parse "refs/heads/$branch")"
if changed >/dev/null; then settle || true; fi
while IFS= read -r -d '' file && IFS= read -r -d '' _ && IFS= read -r -d '' filter; do
    [ "$filter" = lfs ] && [ -f "$file" ] && [ ! -L "$file" ] && grep -qam 1 '^version https://git-lfs' <(head -c 100 -- "$file") || continue
    say pointer "$file"
done <"$TMPDIR/filters"
