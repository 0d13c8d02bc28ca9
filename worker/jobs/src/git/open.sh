# Makes sure of a checkout: the directory to work in is there, and so is what is copied.
enter
is_whole
is_directory "$T_PREFIX" || refuse "$T_PREFIX of $T_WRITES is a link, or no directory" 'remove what is there'
# No link is followed; secrets are hidden here.
while IFS= read -r file; do
    [ -n "$file" ] || continue
    from=$T_TOP/$file
    [ -e "$from" ] || refuse "$file of \`[checkout] copy\` is not in $T_TOP" 'make it there, or take it out of team.toml'
    [ "$(realpath -e -- "$from")" = "$(realpath -e -- "$T_TOP")/${file%/}" ] && [ -z "$(find "$from" -type l -print -quit)" ] ||
        refuse "$file of \`[checkout] copy\` is a link, or has one" 'name what it leads to, if that lies beneath the repository'
    [ -r "$from" ] && cp -R --reflink=auto -- "$from" "$TMPDIR/copied" ||
        refuse "$file of \`[checkout] copy\` cannot be read: a secret is never copied" 'take it out of team.toml'
    mkdir -p -- "$(dirname -- "$file")"
    rm -rf -- "./$file"
    mv -- "$TMPDIR/copied" "./$file"
done <<<"$T_COPY"
