    const struct number left = $unpack_a, right = $unpack_b;
    const struct number chosen = greater_of(&left, &right, false);
    const struct exact x = exact_of(&chosen);
