# Has the user's remote-tracking branches and tags in the team repository, under their names. What the team itself is called stays its own:
# what is shown of it, and what its clones see as `origin/integration`.
believe_user
source=$(source_of_team)
shown=$(setting "$team/config" shown) || shown=refs/remotes/team/integration
export GIT_DIR=$T_WRITES
cd /
cd "$TMPDIR"
list() { git --git-dir="$1" for-each-ref --format='%(refname) %(objectname) %(symref)' refs/remotes refs/tags | LC_ALL=C sort; }
list "$source" | { grep -vE "^(refs/remotes/origin/integration(/[^ ]*)?|$shown) " || true; } >theirs
list "$team" >ours
LC_ALL=C comm -23 theirs ours >new
# First what is gone goes: what is new may lie below its name. A tag may be known to a teammate, and stays.
cut -d ' ' -f 1 theirs | LC_ALL=C sort >known
sed -n 's|^\(refs/remotes/[^ ]*\) .*|\1|p' ours | LC_ALL=C sort | LC_ALL=C comm -23 - known | sed 's/^/delete /' >gone
[ ! -s gone ] || git update-ref --no-deref --stdin <gone
cut -d ' ' -f 2 new | git cat-file --batch-check | sed -n 's/ missing$//p' | sort -u >missing
if [ -s missing ]; then
    { grep -F -f missing new || true; } | sed -n 's/^\([^ ]*\) [^ ]* $/+\1:\1/p' |
        git -c fetch.fsckObjects=false fetch --quiet --no-tags --update-shallow --no-write-fetch-head --stdin "$source"
fi
sed -n 's/^\([^ ]*\) \([^ ]*\) $/update \1 \2/p' new >update
[ ! -s update ] || git update-ref --no-deref --stdin <update
sed -n 's/^\([^ ]*\) [^ ]* \(.\+\)$/\1 \2/p' new | while read -r name target; do git symbolic-ref "$name" "$target"; done
[ "$(wc -l <update)" -lt 100 ] || git pack-refs --all
say source "$source"
