# Puts what is to be checked into the scratch clone, and what the last integrated check left of its caches.
cd "$T_WRITES"
if [ ! -d .git ]; then
    clone_team
    mv .new/.git .git
    rmdir .new
fi
write_names .git
enter
if has_lfs; then bring_lfs "$T_COMMIT" .git; fi
judge git checkout --quiet --force --detach "$T_COMMIT"
git clean --quiet -ffdx
# What a check has left in a submodule goes, too.
git ls-files --stage -z | sed -zn 's/^160000 [^\t]*\t//p' >"$TMPDIR/submodules"
while IFS= read -r -d '' path; do
    rm -rf -- "$path"
    mkdir -- "$path"
done <"$TMPDIR/submodules"
if [ -f .gitmodules ]; then
    users_tree
    T_TOP=$tree
    fill_submodules "$T_TOP"
fi
is_directory "$T_PREFIX" || { say conflict "$T_PREFIX"; exit; }
cd -- "./$T_PREFIX"
while IFS= read -r path; do
    [ -n "$path" ] && [ -e "$T_CACHE/$path" ] || continue
    mkdir -p -- "$(dirname -- "$path")"
    [ ! -e "$path" ] && cp -a --reflink=auto -- "$T_CACHE/$path" "$path" || say cold "$path"
done <<<"$T_PATHS"
