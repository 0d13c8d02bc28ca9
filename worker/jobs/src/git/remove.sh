# Refuses to let a checkout go that has work which is nowhere else.
enter
next="\`teamctl forget $T_NAME --discard\` removes it anyway"
refuse_uncommitted "$next"
# What was copied from the user is no work of the teammate: the user's own branches and tags may have moved since, or be gone.
git for-each-ref --format='%(objectname) %(refname)' | sed '/^[^ ]* refs\/\(remotes\|tags\)\//d; s/ .*//' >"$TMPDIR/own"
git rev-parse --verify --quiet HEAD >>"$TMPDIR/own" || true
if git show-ref --quiet --verify refs/stash; then
    git rev-list --walk-reflogs refs/stash >>"$TMPDIR/own"
fi
mapfile -t own <"$TMPDIR/own"
commits=
[ "${#own[@]}" = 0 ] || commits=$(unsaved "${own[@]}")
[ -z "$commits" ] ||
    refuse "$T_WRITES has commits that are not integrated or saved: $(paste -sd, <<<"$commits" | sed 's/,/, /g')" "$next"
tags() { git "$@" for-each-ref --format='%(refname:short) %(objectname)' refs/tags | sort; }
tags --git-dir="$team" >"$TMPDIR/saved"
tags=$(tags --git-dir="$GIT_DIR" | comm -23 - "$TMPDIR/saved" | cut -d ' ' -f 1 | first 5)
git --git-dir="$team" for-each-ref --format='%(refname:lstrip=2)' refs/tags | LC_ALL=C sort >"$TMPDIR/saved"
git for-each-ref --format='%(objectname) %(refname:lstrip=2)' refs/tags >"$TMPDIR/tags"
# One that the user has moved is saved as long as the team repository has its object.
git --git-dir="$team" cat-file --batch-check='here %(rest)' <"$TMPDIR/tags" | sed -n 's/^here //p' | LC_ALL=C sort | LC_ALL=C comm -12 - "$TMPDIR/saved" >"$TMPDIR/kept"
tags=$(cut -d ' ' -f 2 "$TMPDIR/tags" | LC_ALL=C sort | LC_ALL=C comm -23 - "$TMPDIR/kept" | first 5)
[ -z "$tags" ] ||
    refuse "$T_WRITES has tags that are nowhere else: $(paste -sd, <<<"$tags" | sed 's/,/, /g')" "$next"
# Nor may a submodule have what no copy of the user has. Its settings are not read: git sees a copy of its references.
unset GIT_DIR GIT_WORK_TREE
known=$TMPDIR/known own=$TMPDIR/submodule
users_tree
look_into() {
    rm -rf "$own"
    mkdir -p "$own/objects/info"
    realpath -- "$1/objects" >"$own/objects/info/alternates"
    cp -RP -- "$1/HEAD" "$1/refs" "$own"
    [ ! -e "$1/packed-refs" ] || cp -P -- "$1/packed-refs" "$own"
    { git --git-dir="$own" rev-parse --verify --quiet HEAD || true; git --git-dir="$own" for-each-ref --format='%(objectname)'; } |
        git --git-dir="$known" cat-file --batch-check >"$TMPDIR/found"
    ! grep -q ' missing$' "$TMPDIR/found" || refuse "the submodule $2 of $T_WRITES has commits that are nowhere else" "$next"
}
# Names the submodules of an index, below a path.
submodules() { git "${@:2}" ls-files --stage -z | sed -zn 's/^160000 [^\t]*\t//p' | while IFS= read -r -d '' path; do printf '%s\0' "$1$path"; done; }
git init --quiet --bare --template= "$known"
find "$source" -path "$source/objects" -prune -o -type d -name objects -print >"$known/objects/info/alternates"
submodules '' >"$TMPDIR/links"
# Those of a submodule come after it.
while IFS= read -r -d '' path; do
    realpath -qe -- "$tree/$path/.git/objects" >>"$known/objects/info/alternates" || true
    [ -d "$path" ] && [ ! -L "$path" ] && [ -n "$(ls -A -- "$path")" ] || continue
    changed="the submodule $path of $T_WRITES has changes that are not committed"
    [ -e "$path/.git" ] || refuse "$changed" "$next"
    look_into "$(git rev-parse --resolve-git-dir "$path/.git")" "$path"
    git --git-dir="$own" --work-tree="$path" read-tree HEAD
    files=$(cd -- "$path" && GIT_DIR=$own GIT_WORK_TREE=$PWD changed | first 1)
    [ -z "$files" ] || refuse "$changed" "$next"
    submodules "$path/" --git-dir="$own" >>"$TMPDIR/links"
done <"$TMPDIR/links"
mkdir -p .git/modules
find .git/modules -name HEAD -printf '%h\0' >"$TMPDIR/modules"
while IFS= read -r -d '' at; do
    [ ! -d "$at/objects" ] || look_into "$at" "${at#.git/modules/}"
done <"$TMPDIR/modules"
