"""The ordering protocols, one a file. `registry` names them; nothing else is needed to use them."""
