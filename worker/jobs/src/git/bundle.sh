# Writes a bundle for a host: what its copy of the team repository lacks.
all_names "$team" >"$TMPDIR/names"
[ "$(hash_of "$TMPDIR/names")" != "$T_NAMES" ] || [ -n "$T_ALSO" ] || exit 0
export GIT_DIR=$team
# An empty line would end what is read.
also() { [ -z "$T_ALSO" ] || printf '%s\n' "$T_ALSO"; }
# What the host says that it has may be anything.
printf '%s\n' "$T_KNOWN" | git cat-file --batch-check='%(objectname) %(objecttype)' | sed -n 's/^\([0-9a-f]*\) \(commit\|tag\)$/^\1/p' >"$TMPDIR/known"
{
    cat "$TMPDIR/names"
    echo
    { sed '/^shallow /d; s/ .*//' "$TMPDIR/names" && also && cat "$TMPDIR/known"; } |
        git pack-objects --quiet --revs --thin --stdout --delta-base-offset
} >"$T_FILE"
say sha256 "$(hash_of "$T_FILE")"
say length "$(stat -c %s -- "$T_FILE")"
say format "$(git rev-parse --show-object-format)"
