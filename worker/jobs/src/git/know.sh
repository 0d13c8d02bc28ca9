# Says what the copy of the team repository has.
[ -e "$team" ] || exit 0
all_names "$team" >"$TMPDIR/names"
say names "$(hash_of "$TMPDIR/names")"
git --git-dir="$team" for-each-ref --count=1000 --sort=-creatordate --format='%(objectname)' | while IFS= read -r commit; do say commit "$commit"; done
