# Has the user's remote-tracking branches and tags in the team repository, under their names. What the team itself is called stays its own:
# what is shown of it, and what its clones see as `origin/integration`.
believe_user
read_source
shown=refs/remotes/team/integration
! setting "$team/config" shown || shown=$value
export GIT_DIR=$T_WRITES
cd /
cd "$TMPDIR"
# Each name is written as it is, and never what a symbolic one leads to: another name of the team, such as its integration branch. Only the
# HEAD of a remote stays symbolic, for a branch of the same remote.
list() { git --git-dir="$1" for-each-ref --format='%(refname) %(objectname) %(symref)' refs/remotes refs/tags | LC_ALL=C sort; }
is_head='^(refs/remotes/.+/)HEAD [^ ]* \1[^ ]+$'
list "$source" | { grep -vE "^(refs/remotes/origin/integration(/[^ ]*)?|$shown) " || true; } | sed -E "\@$is_head@!s/ [^ ]*\$/ /" | LC_ALL=C sort >theirs
list "$team" >ours
LC_ALL=C comm -23 theirs ours >new
cut -d ' ' -f 1 theirs | LC_ALL=C sort >known
# First what is gone goes: what is new may lie below its name. A tag may be known to a teammate, and stays.
sed -n 's|^\(refs/remotes/[^ ]*\) .*|\1|p' ours | LC_ALL=C sort | LC_ALL=C comm -23 - known >gone
sed -nE "\@$is_head@!s/^([^ ]*) [^ ]* [^ ]+\$/\1/p" ours >>gone
# A name lies in the way of one below it, and of one above: then a tag that is gone there goes, too.
sed -n 's|^\(refs/tags/[^ ]*\) .*|\1|p' ours | LC_ALL=C sort | LC_ALL=C comm -23 - known >kept
if [ -s kept ]; then
    cut -d ' ' -f 1 new >names
    while read -r tag; do
        ! grep -qF "$tag/" names || echo "$tag"
        above=${tag%/*}
        while [ "$above" != refs/tags ]; do
            ! grep -qxF "$above" names || echo "$tag"
            above=${above%/*}
        done
    done <kept >>gone
fi
sort -u gone | sed 's/^/delete /' >delete
[ ! -s delete ] || git update-ref --no-deref --stdin <delete
cut -d ' ' -f 2 new | git cat-file --batch-check | sed -n 's/ missing$//p' | sort -u >missing
if [ -s missing ]; then
    # Objects alone: `fetch` would write through a symbolic name.
    { grep -F -f missing new || true; } | cut -d ' ' -f 1 |
        git -c fetch.fsckObjects=false fetch --quiet --no-tags --refmap= --update-shallow --no-write-fetch-head --stdin "$source"
fi
sed -n 's/^\([^ ]*\) \([^ ]*\) $/update \1 \2/p' new >update
[ ! -s update ] || git update-ref --no-deref --stdin <update
sed -n 's/^\([^ ]*\) [^ ]* \(.\+\)$/\1 \2/p' new | while read -r name target; do git symbolic-ref "$name" "$target"; done
[ "$(wc -l <update)" -lt 100 ] || git pack-refs --all
say source "$source"
