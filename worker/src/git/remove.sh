# Refuses to let a checkout go that has work which is nowhere else.
enter
git fetch --quiet origin
refuse_uncommitted "\`teamctl forget $T_NAME --discard\` removes it all the same"
unkept=$(git log --format=%s --no-decorate HEAD --branches --not refs/remotes/origin/integration --glob='refs/team/*' | head -n 5)
[ -z "$unkept" ] ||
    refuse "$T_WRITES has commits that are neither integrated nor kept: $(paste -sd, <<<"$unkept" | sed 's/,/, /g')" \
        "\`teamctl forget $T_NAME --discard\` removes it all the same"
