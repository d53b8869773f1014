"""Kernels written as vector code: one small vocabulary (`lanes`), and what is said in it.

Sixteen lanes everywhere; LLVM splits them where a processor's vectors are narrower. Each kernel has a twin of
plain loops beside this package, chosen where these do not apply and by `EMU_CPU=generic`.
"""
