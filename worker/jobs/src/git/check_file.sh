# Precedes scripts that take in a file which has come from the other machine.
[ "$(hash_of "$T_FILE")" = "$T_SHA256" ] || refuse 'what came over the link is damaged' 'try again'
