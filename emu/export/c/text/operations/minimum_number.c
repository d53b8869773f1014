    const struct number left = $unpack_a, right = $unpack_b;
    const struct number chosen = lesser_of(&left, &right, true);
    const struct exact x = exact_of(&chosen);
