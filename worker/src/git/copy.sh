# Copies files of the user's tree that git does not know into the checkout. No link is followed; secrets are hidden here.
enter
while IFS= read -r file; do
    from=$T_TOP/$file
    [ -e "$from" ] || refuse "$file of \`[checkout] copy\` is not in $T_TOP" 'make it there, or take it out of team.toml'
    [ "$(realpath -e -- "$from")" = "$(realpath -e -- "$T_TOP")/${file%/}" ] && [ -z "$(find "$from" -type l -print -quit)" ] ||
        refuse "$file of \`[checkout] copy\` is a link, or has one" 'name what it leads to, if that lies beneath the repository'
    [ -r "$from" ] && cp -R --reflink=auto -- "$from" "$TMPDIR/copied" ||
        refuse "$file of \`[checkout] copy\` cannot be read: a secret is never copied" 'take it out of team.toml'
    mkdir -p -- "$(dirname -- "$file")"
    rm -rf -- "./$file"
    mv -- "$TMPDIR/copied" "./$file"
    git check-ignore --quiet -- "$file" || git ls-files --error-unmatch -- "$file" || printf '/%s\n' "$file" >>.git/info/exclude
done <<<"$T_COPY"
