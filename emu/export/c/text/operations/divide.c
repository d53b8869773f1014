    const struct number left = $unpack_a, right = $unpack_b;
    const struct exact x = quotient_of(&left, &right);
    if (x.kind == INFINITE && left.kind == FINITE)
        raised |= DIVIDED_BY_ZERO;
