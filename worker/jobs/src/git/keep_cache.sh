# Keeps the caches that an integrated check has left in the scratch clone.
while IFS= read -r path; do
    [ -n "$path" ] && [ -e "$T_SCRATCH/$path" ] && [ ! -L "$T_SCRATCH/$path" ] || continue
    tidy() { rm -rf -- "$T_WRITES/.new"; }
    rm -rf -- "$T_WRITES/.old" "$T_WRITES/.new"
    mkdir -p -- "$(dirname -- "$T_WRITES/$path")"
    cp -a --reflink=auto -- "$T_SCRATCH/$path" "$T_WRITES/.new"
    [ ! -e "$T_WRITES/$path" ] || mv -- "$T_WRITES/$path" "$T_WRITES/.old"
    mv -- "$T_WRITES/.new" "$T_WRITES/$path"
    rm -rf -- "$T_WRITES/.old"
done <<<"$T_PATHS"
