    const struct number left = $unpack_a;
    struct number right = $unpack_b;
    struct exact x;
    right.negative = !right.negative; /* left + (-right) */
    x = sum_of(&left, &right, $toward_minus);
