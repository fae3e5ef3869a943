"""`anyformer complete`: a script that completes verbs and recipe names."""

from __future__ import annotations

import argparse

from anyformer.cli.main import VERBS
from anyformer.recipes import recipes
from anyformer.recipes.sizes import SIZES

FOLDERS = ("convert", "verify", "generate")  # verbs whose words are folders
EXAMPLE = """\
source <(anyformer complete bash)
source <(anyformer complete zsh)"""

BASH = """\
_anyformer() {{
    local word=${{COMP_WORDS[COMP_CWORD]}}
    if [[ $COMP_CWORD -eq 1 ]]; then
        COMPREPLY=($(compgen -W "{verbs}" -- "$word"))
    elif [[ ${{COMP_WORDS[1]}} == complete ]]; then
        COMPREPLY=($(compgen -W "bash zsh" -- "$word"))
    elif [[ " {folders} " == *" ${{COMP_WORDS[1]}} "* ]]; then
        COMPREPLY=($(compgen -d -- "$word"))
    else
        COMPREPLY=($(compgen -W "{recipes}" -- "$word") $(compgen -f -X '!*.json' -- "$word"))
    fi
}}
complete -F _anyformer anyformer
"""

ZSH = """\
#compdef anyformer
_anyformer() {{
    if (( CURRENT == 2 )); then
        compadd -- {verbs}
    elif [[ $words[2] == complete ]]; then
        compadd -- bash zsh
    elif [[ " {folders} " == *" $words[2] "* ]]; then
        _files -/
    else
        compadd -- {recipes}
        _files -g '*.json'
    fi
}}
compdef _anyformer anyformer
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this verb."""
    parser.add_argument("shell", choices=("bash", "zsh"), help="the shell that reads the script")


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    script = {"bash": BASH, "zsh": ZSH}[args.shell]
    words = {"verbs": VERBS, "recipes": [*recipes(), *SIZES], "folders": FOLDERS}
    print(script.format(**{name: " ".join(found) for name, found in words.items()}), end="")
    return 0
