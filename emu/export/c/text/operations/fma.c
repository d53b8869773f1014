    const struct number left = $unpack_a, right = $unpack_b, term = $unpack_c;
    const struct number product = product_of(&left, &right);
    const struct exact x = sum_of(&product, &term, $toward_minus);
