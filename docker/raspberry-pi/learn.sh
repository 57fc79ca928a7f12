#!/bin/sh
# learn.sh FOLDER: let FOLDER/net.fbit learn from FOLDER/pictures, if they are others than last time.
#
#   FOLDER/net.fbit             the net as it was deployed; never written
#   FOLDER/pictures/CLASS/*     labelled pictures; more may come at any time
#   FOLDER/tuned.fbit           the net after learning: replaced in one step, so that readers never see half of it
#
# Power may fail at any moment. A round of learning keeps its checkpoint in a folder named after its pictures: a round
# that was cut short goes on from there and ends with the same bits; a finished one is not repeated.
set -eu
cd "$1"
FLIPBIT=${FLIPBIT:-/opt/flipbit/.venv/bin/flipbit}

current=$(find pictures -type f ! -name '.*' -printf '%P %s %T@\n' | sort | cksum | tr ' ' -)
round=rounds/$current
[ ! -e "$round/done" ] || exit 0

mkdir -p "$round"
# Half-written files of a run that was cut short.
find . -maxdepth 1 -name 'tuned.fbit?*' -delete
find "$round" -name 'tuning.ckpt?*' -delete
"$FLIPBIT" finetune net.fbit --data pictures --target "${TARGET:-sim:nucleo-l4r5zi}" \
  --checkpoint "$round" -o tuned.fbit
sync
touch "$round/done"
# Rounds of earlier pictures are of no more use.
find rounds -mindepth 1 -maxdepth 1 ! -name "$current" -exec rm -r {} +
