# Refuses to let a checkout go that has work which is nowhere else.
enter
next="\`teamctl forget $T_NAME --discard\` removes it anyway"
refuse_uncommitted "$next"
git for-each-ref --format='%(objectname)' >"$TMPDIR/own"
git rev-parse --verify --quiet HEAD >>"$TMPDIR/own" || true
if git show-ref --quiet --verify refs/stash; then
    git rev-list --walk-reflogs refs/stash >>"$TMPDIR/own"
fi
mapfile -t own <"$TMPDIR/own"
commits=$(unsaved "${own[@]}")
[ -z "$commits" ] ||
    refuse "$T_WRITES has commits that are not integrated or saved: $(paste -sd, <<<"$commits" | sed 's/,/, /g')" "$next"
tags() { git "$@" for-each-ref --format='%(refname:short) %(objectname)' refs/tags | sort; }
tags --git-dir="$team" >"$TMPDIR/saved"
tags=$(tags --git-dir="$GIT_DIR" | comm -23 - "$TMPDIR/saved" | cut -d ' ' -f 1 | first 5)
[ -z "$tags" ] ||
    refuse "$T_WRITES has tags that are nowhere else: $(paste -sd, <<<"$tags" | sed 's/,/, /g')" "$next"
