# Takes a pack that a teammate has made into the team repository: each object is examined, and nothing may be missing.
export GIT_DIR=$T_WRITES
cd /
references=refs/team/task-$T_TASK
last=$(git for-each-ref --sort=-version:refname --count=1 --format='%(refname:lstrip=3)' "$references/")
known() { git for-each-ref --format='%(refname)' --contains "$T_COMMIT" "$references/" | first 1; }
if [ -n "$last" ] && git cat-file -e "$T_COMMIT^{commit}" && reference=$(known) && [ -n "$reference" ]; then
    say kept "$reference"
    exit
fi
# What is refused, or broken off, never gets in. The directory stays: to make and remove it would take two programs each time.
incoming=$GIT_DIR/incoming
shopt -s nullglob
files=("$incoming"/* "$incoming"/pack/*)
if [ "${files[*]}" != "$incoming/pack" ]; then
    rm -rf "$incoming"
    mkdir -p "$incoming/pack"
fi
tidy() { [ "$code" = 0 ] || rm -rf "$incoming"; }
export GIT_OBJECT_DIRECTORY=$incoming GIT_ALTERNATE_OBJECT_DIRECTORIES="\"$GIT_DIR/objects\""
# It is quoted if the pack is no good.
: >"$log"
# The teammate may have put something else there: no link is followed, and nothing is waited for.
if ! dd if="$T_PACK" bs=1M iflag=nofollow,nonblock status=none | git index-pack --strict --fix-thin --stdin; then
    why=$(grep -E '^(error|fatal):' "$log" | tail -n 1 || true)
    if [ -z "$why" ] || grep -qE 'No space left on device|Disk quota exceeded' "$log"; then exit 1; fi
    refuse "the work is refused: ${why#*: }" 'make a commit without what is named, and submit again'
fi
if ! git rev-list --objects --quiet "$T_COMMIT" --not --branches; then
    git cat-file -e "$T_COMMIT^{commit}" || refuse "HEAD moved while it was taken" 'submit again'
    refuse 'the work is refused: objects are missing' 'make the commits again, on the branch of the task'
fi
unset GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES
# In this order: git uses a pack as soon as it has its index.
mv -f -t "$GIT_DIR/objects/pack" -- "$incoming"/pack/*.pack "$incoming"/pack/*.rev "$incoming"/pack/*.idx
# The contents of Git LFS that the work has added: each is what its name says, or is not taken.
stored=${T_PACK%/*}/lfs/objects
if [ -d "$stored" ]; then
    git rev-list --objects --no-object-names "$T_COMMIT" --not --branches | lfs_ids | while read -r id; do
        at=${id:0:2}/${id:2:2}
        [ -f "$stored/$at/$id" ] && [ ! -e "$GIT_DIR/lfs/objects/$at/$id" ] || continue
        mkdir -p "$GIT_DIR/lfs/objects/$at"
        new=$GIT_DIR/lfs/objects/$at/$id.new
        dd if="$stored/$at/$id" of="$new" bs=1M iflag=nofollow,nonblock status=none || true
        if [ -f "$new" ] && [ "$(sha256sum <"$new")" = "$id  -" ]; then mv -f -- "$new" "${new%.new}"; else rm -f -- "$new"; fi
    done
fi
reference=$references/$((${last:-0} + 1))
git update-ref "$reference" "$T_COMMIT" ''
say kept "$reference"
