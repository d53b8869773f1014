    const struct number left = $unpack_a, right = $unpack_b;
    const struct exact x = sum_of(&left, &right, $toward_minus);
