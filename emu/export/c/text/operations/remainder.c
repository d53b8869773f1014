    const struct number left = $unpack_a, right = $unpack_b;
    const struct number rest = remainder_of(&left, &right);
    const struct exact x = exact_of(&rest);
