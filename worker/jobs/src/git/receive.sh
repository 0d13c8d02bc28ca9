# Makes the copy of the team repository what a bundle of home says.
at=$team
if [ ! -e "$team" ]; then
    at=$T_HOME_OF_TEAM/new.git
    tidy() { rm -rf "$at"; }
    rm -rf "$at"
    # The scripts read names from files.
    GIT_DEFAULT_REF_FORMAT=files git init --quiet --bare --template= --object-format="$T_FORMAT" --initial-branch=integration "$at"
    git config --file "$at/config" teamd.source "$team"
    set_up_team "$at"
fi
export GIT_DIR=$at
exec 4<"$T_FILE"
while IFS= read -r line <&4 && [ -n "$line" ]; do printf '%s\n' "$line"; done >"$TMPDIR/names"
sed -n 's/^shallow //p' "$TMPDIR/names" >"$TMPDIR/shallow"
# Home is believed: what its user has committed long ago need not please an examination of today.
git index-pack --fix-thin --stdin <&4
if [ -s "$TMPDIR/shallow" ]; then cp -- "$TMPDIR/shallow" "$at/shallow"; else rm -f -- "$at/shallow"; fi
{ sed '/^shallow /d; s/ .*//' "$TMPDIR/names" && { [ -z "$T_ALSO" ] || printf '%s\n' "$T_ALSO"; }; } | git rev-list --objects --quiet --stdin --not --all ||
    refuse 'objects are missing in what came from home' 'try again'
[ "$(wc -l <"$TMPDIR/names")" -lt 100 ] && many= || many=1
# The first time, and where they are many, each is not synced by itself: the copy can be made again.
update_names() { git ${many:+-c core.fsync=none} update-ref --no-deref --stdin; }
sed -n 's/^[0-9a-f]* \(refs\/[^ ]*\) $/\1/p' "$TMPDIR/names" >"$TMPDIR/plain"
sort -o "$TMPDIR/plain" "$TMPDIR/plain"
git for-each-ref --format='%(refname) %(symref)' | sed -n 's/ $//p' >"$TMPDIR/here"
sort -o "$TMPDIR/here" "$TMPDIR/here"
# First what is gone goes: what is new may lie below its name.
{
    comm -23 "$TMPDIR/here" "$TMPDIR/plain"
    git for-each-ref --format='%(refname) %(symref)' | sed -n 's/ [^ ][^ ]*$//p'
} | sed 's/^/delete /' | update_names
sed -n 's/^\([0-9a-f]*\) \(refs\/[^ ]*\) $/update \2 \1/p' "$TMPDIR/names" | update_names
sed -n 's/^[0-9a-f]* \(refs\/remotes\/[^ ]*\/HEAD\) \(refs\/remotes\/[^ ]*\)$/\1 \2/p' "$TMPDIR/names" |
    while read -r name target; do git symbolic-ref "$name" "$target"; done
[ -z "$many" ] || git pack-refs --all
if [ "$at" != "$team" ]; then
    cd "$at"
    sync -f .
    cd /
    mv "$at" "$team"
fi
