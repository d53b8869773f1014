"""Published claims about the arithmetic of machines, computed again: data, a picture and a paragraph each.

    measure() ──► claims/NAME.json ──► picture(data) ──► docs/pictures/claims/NAME.svg
                                   └─► section(data) ──► the place NAME of docs/results.md

A claim is a module with these three functions. Pictures and texts take every figure from the data.
"""
